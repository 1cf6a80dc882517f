// Command volumes provisions the bed's PersistentVolumes: it gives every claim
// of its provisioner a folder on the node that the scheduler chose, as a
// "local" volume, and removes a released volume with its folder. It must see
// the nodes' folders at the same path as the kubelets do.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	// Written by the controller manager and the scheduler.
	provisionerAnnotation  = "volume.kubernetes.io/storage-provisioner"
	selectedNodeAnnotation = "volume.kubernetes.io/selected-node"
	// Tells the controller manager that a volume was provisioned, and by whom.
	provisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
	// Where --folder has the node's name.
	nodePlace = "NODE"
	// What failed is tried again by then.
	resyncInterval = 5 * time.Second
)

type provisioner struct {
	client kubernetes.Interface
	name   string
	folder string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	name := flag.String("provisioner", "", "the provisioner's name in the StorageClass")
	folder := flag.String("folder", "", "folder of the volumes; "+nodePlace+" stands for the node's name")
	klog.InitFlags(nil)
	flag.Parse()
	if *name == "" || !strings.Contains(*folder, nodePlace) {
		klog.Exit("--provisioner must be given, and --folder must contain " + nodePlace)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Exit(err)
	}
	p := &provisioner{client: kubernetes.NewForConfigOrDie(config), name: *name, folder: *folder}

	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(p.client, resyncInterval)
	onChange(factory.Core().V1().PersistentVolumeClaims().Informer(), func(claim *v1.PersistentVolumeClaim) error {
		return p.provision(ctx, claim)
	})
	onChange(factory.Core().V1().PersistentVolumes().Informer(), func(volume *v1.PersistentVolume) error {
		return p.remove(ctx, volume)
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	select {}
}

// onChange calls handle for every object that is there, comes or changes, and
// for all of them again at each resync.
func onChange[T metav1.Object](informer cache.SharedIndexInformer, handle func(T) error) {
	call := func(object any) {
		typed := object.(T)
		if err := handle(typed); err != nil {
			klog.ErrorS(err, "failed", "object", klog.KObj(typed))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    call,
		UpdateFunc: func(_, object any) { call(object) },
	})
	if err != nil {
		klog.Exit(err)
	}
}

func (p *provisioner) provision(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	node := claim.Annotations[selectedNodeAnnotation]
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Annotations[provisionerAnnotation] != p.name || node == "" {
		return nil
	}
	// From the claim's UID: a claim that comes by twice gets one volume.
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(strings.Replace(p.folder, nodePlace, node, 1), name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	// Pods run as any user, and the umask has taken some bits away.
	if err := os.Chmod(path, 0o777); err != nil {
		return err
	}
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedByAnnotation: p.name}},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace,
				Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion},
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (p *provisioner) remove(ctx context.Context, volume *v1.PersistentVolume) error {
	if volume.Status.Phase != v1.VolumeReleased || volume.DeletionTimestamp != nil || volume.Annotations[provisionedByAnnotation] != p.name ||
		volume.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete || volume.Spec.Local == nil {
		return nil
	}
	// Anyone who may write volumes can name any path in one.
	if filepath.Base(volume.Spec.Local.Path) != volume.Name {
		return fmt.Errorf("the path %s is not one of ours", volume.Spec.Local.Path)
	}
	if err := os.RemoveAll(volume.Spec.Local.Path); err != nil {
		return err
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
